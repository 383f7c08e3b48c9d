"""Whether this process has the application: a prototype, or a process that was forked from one.

It must not know how a server is started. The prototype sets it, and calls that start a server look at it.
"""

#: This process is a prototype, or was forked from one.
is_one = False


def refuse_to_nest(call: str) -> None:
    """Raise RuntimeError in a prototype and its workers: an unguarded call runs again when the prototype loads its module, and
    would start servers without end.
    """
    if is_one:
        raise RuntimeError(
            f"{call} was called while a server was loading the application from the same file: put the call below "
            '`if __name__ == "__main__":`, or into a function'
        )
