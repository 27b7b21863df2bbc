"""The workshop: everything that prepares, serves and checks Quiesce on a developer's machine.

It needs a Python and a Node that are already there, and makes the rest: `places` names every file,
`steps` performs set-up steps once, `setup` lists them, `serving` runs the Worker under workerd (the
tests use it too), and `development`, `verification` and `locking` are the bodies of the scripts.
"""
