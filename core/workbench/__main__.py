"""`python -m workbench`: the same as the command `workbench`. torchrun and accelerate start it."""

from workbench.cli import main

if __name__ == "__main__":
    main()
