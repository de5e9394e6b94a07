"""What a run says when it is done: its numbers, for people and as the JSON of `--json`."""
