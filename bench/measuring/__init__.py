"""What `bench/run` runs: exact counts of storage acts, and times as ratios within one run."""
