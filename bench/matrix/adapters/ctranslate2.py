"""CTranslate2 rotates inside of whole models: no call of its package takes positions or returns rotated vectors."""

from __future__ import annotations

import ctranslate2  # noqa: F401 - the row says that it can be imported

from case import Case, Refused, Rotate

PACKAGE = "ctranslate2"


def make(case: Case) -> Rotate:
    raise Refused("rotates inside of whole models only")


VARIANTS = {"": make}
