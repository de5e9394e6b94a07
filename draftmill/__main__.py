"""`python -m draftmill` is `draftmill`: for whoever has the interpreter and not its scripts on the path."""

from draftmill.cli import main

if __name__ == "__main__":
    main()
