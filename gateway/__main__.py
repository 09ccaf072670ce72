"""`python -m gateway` is `parley`."""

from gateway.cli import main

if __name__ == "__main__":
    main(prog_name="parley")
