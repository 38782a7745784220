"""The one exception for bad input: what was found, what was expected, what to do."""


class BadInput(Exception):
    """Input that cannot be used as it is; commands print the message and exit with status 2.

    Anything else that is raised is a defect of the program and keeps its traceback.
    """
