"""`python -m workbench`: the same as the command `workbench`, and what torchrun and accelerate start."""

from workbench.cli import main

if __name__ == "__main__":
    main()
