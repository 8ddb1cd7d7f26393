"""The error of this project's tools that is meant for the person at the keyboard."""


class UserError(Exception):
    """Something the user can repair: the message names what is wrong, where, and the remedy.

    The tools print it without a traceback and end with exit code 2.
    """
