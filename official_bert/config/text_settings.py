"""`TextSettings`: text normalization before the vocabulary lookup, shared by flags, tokenizers and exports."""

from typing import NamedTuple

from official_bert.support.errors import UserError

TAKES_WORDS_AS_THEY_ARE = (
    "basic_tokenize=false takes words as they are and lowercases nothing; give do_lower_case=false"
)


class TextSettings(NamedTuple):
    """Text normalization settings, named like the flags and the arguments of `FullTokenizer`.

    Attributes:
      do_lower_case: whether to lowercase text and, unless `strip_accents` is false, strip accents.
      strip_accents: whether lowercasing decomposes characters and drops accents; otherwise `"É"` becomes `"é"`, and a
        Hangul syllable stays one character.
      basic_tokenize: whether to clean text and split it at punctuation and CJK characters; otherwise it is only split
        at white space.
    """

    do_lower_case: bool = True
    strip_accents: bool = True
    basic_tokenize: bool = True

    def check(self) -> "TextSettings":
        """Check the settings and return them.

        Raises:
          UserError: two settings conflict, or one would be ignored.
        """
        if self.do_lower_case and not self.basic_tokenize:
            raise UserError(TAKES_WORDS_AS_THEY_ARE)
        if not self.strip_accents and not self.do_lower_case:
            raise UserError("strip_accents needs do_lower_case")
        return self

    def require_unchanged_text(self, what: str) -> None:
        """Raise `UserError` unless the settings leave text unchanged; the message names `what` as the reason."""
        for name, right in (("do_lower_case", False), ("strip_accents", True), ("basic_tokenize", True)):
            if getattr(self, name) != right:
                given, right = str(not right).lower(), str(right).lower()
                raise UserError(f"{name}={given}, but {what} takes text as it is; give {name}={right}")

    def updated(self, **values: bool) -> "TextSettings":
        """Return a copy with some settings changed, and others reset to their defaults where they no longer apply.

        Args:
          values: new values by name. They are never reset; `check` reports conflicts among them.
        """
        settings = self._replace(**values)
        if not settings.basic_tokenize and "do_lower_case" not in values:
            settings = settings._replace(do_lower_case=False)
        if not settings.do_lower_case and "strip_accents" not in values:
            settings = settings._replace(strip_accents=True)
        return settings

    @property
    def changed(self) -> dict[str, bool]:
        """`do_lower_case`, and the other settings that differ from the reference."""
        defaults = TextSettings()
        return {
            name: value
            for name, value in self._asdict().items()
            if name == "do_lower_case" or value != getattr(defaults, name)
        }

    def __str__(self) -> str:
        """Format `changed` for messages: `"do_lower_case=true"`."""
        return ", ".join(f"{name}={str(value).lower()}" for name, value in self.changed.items())
