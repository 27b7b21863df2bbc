"""This deployment: its Worker and its Durable Object class; nothing else."""

from agents import REGISTRY
from quiesce import conversation_object, router


class ConversationObject(conversation_object.ConversationObject):
    """One conversation of this deployment."""

    agents = REGISTRY


class Default(router.Worker):
    """The fetch handler of this deployment."""

    agents = REGISTRY
