"""What the makers of headers with deepspeed's figures share: how a list is laid out, and writing a header or checking one."""
import argparse
import contextlib
import io
import logging
import sys


def last_list(values: list[str], a_row: int) -> list[str]:
    """The lines of a list that is the last member of its struct, so many values a row."""
    rows = [values[i:i + a_row] for i in range(0, len(values), a_row)]
    return [("     {" if number == 0 else "      ") + ", ".join(row) + ("}}," if number + 1 == len(rows) else ",")
            for number, row in enumerate(rows)]


def write_or_check(description: str, make, figures, what: str) -> int:
    """The command line of a maker: `make` gives the header of a deepspeed, `figures` takes one apart."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", metavar="HEADER", help="compare with a stored header, write nothing")
    arguments = parser.parse_args()
    with contextlib.redirect_stdout(io.StringIO()):  # it reports what it finds of the machine
        import deepspeed
    logging.disable(logging.CRITICAL)
    made = make(deepspeed)
    if arguments.check is None:
        sys.stdout.write(made)
        return 0
    with open(arguments.check, encoding="utf-8") as file:
        same = figures(file.read()) == figures(made)
    print(f"deepspeed {deepspeed.__version__}: {'same' if same else 'other'} {what} as {arguments.check}")
    return 0 if same else 1
