# The fast tier, as README's second command runs it.
test *args:
    pytest {{args}}

# Everything that the gate runs.
all: lint
    pytest
    pytest -m "slow or training or wasm"

# Lint, format, types and generated docs.
lint:
    ruff check .
    ruff format --check .
    pyright
    python docs/generate.py --check

# Mend what can be mended by itself, and write the generated docs.
fix:
    ruff check --fix .
    ruff format .
    python docs/generate.py

# The level, the coverage and the power of the proof.
proof runs="1000":
    python contrib/bench/promises/proof.py --runs {{runs}}
