"""Packages that only some parts of the project need, which the extras of `pyproject.toml` install."""

import importlib
import importlib.util
import logging

from official_bert.support.errors import UserError


def require(package: str, extra: str) -> None:
    """Imports a package, without the notes that it may log about what it did not find.

    Raises:
      UserError: it is not installed; the message says how to install it.
    """
    logging.disable(logging.WARNING)
    try:
        importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise
        raise _not_installed(package, extra) from error
    finally:
        logging.disable(logging.NOTSET)


def check_installed(package: str, extra: str) -> None:
    """Looks for a package without importing it.

    Raises:
      UserError: it is not installed; the message says how to install it.
    """
    if importlib.util.find_spec(package) is None:
        raise _not_installed(package, extra)


def _not_installed(package: str, extra: str) -> UserError:
    return UserError(f"{package} is not installed; run: pip install 'official-bert[{extra}]'")
