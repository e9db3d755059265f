"""Words that are values for programs and texts for people. Pure.

Code compares values, and records, stores, logs and metrics have them. Texts can be changed at any time.
"""

from enum import StrEnum


class Word(StrEnum):
    """An enumeration of words: each a value in snake_case with its ``text``."""

    text: str

    def __new__(cls, value: str, text: str = "") -> "Word":
        """A word; its value is also its string."""
        word = str.__new__(cls, value)
        word._value_, word.text = value, text
        return word

    @classmethod
    def text_of(cls, value: str) -> str:
        """The text of a value; an unknown one, such as another version's, is its own text."""
        return next((word.text for word in cls if word == value), value)
