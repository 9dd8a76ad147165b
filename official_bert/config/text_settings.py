"""`TextSettings`: what the tokenizer does to text before it looks words up. Flags, tokenizers and exports share it."""

from typing import NamedTuple

from official_bert.support.errors import UserError

TAKES_WORDS_AS_THEY_ARE = (
    "basic_tokenize=false takes words as they are and lowercases nothing; give do_lower_case=false"
)


class TextSettings(NamedTuple):
    """Settings for the treatment of text. The names are those of flags and of the arguments of `FullTokenizer`.

    Attributes:
      do_lower_case: whether to lowercase text and, unless `strip_accents` is false, strip accents.
      strip_accents: whether lowercasing decomposes characters and drops accents; otherwise `"É"` becomes `"é"`, and a
        Hangul syllable stays one character.
      basic_tokenize: whether to clean text and split it at punctuation and CJK characters; otherwise its words are
        what stands between white space, unchanged.
    """

    do_lower_case: bool = True
    strip_accents: bool = True
    basic_tokenize: bool = True

    def check(self) -> "TextSettings":
        """Return these settings, if each has an effect.

        Raises:
          UserError: two contradict each other, or one would be ignored.
        """
        if self.do_lower_case and not self.basic_tokenize:
            raise UserError(TAKES_WORDS_AS_THEY_ARE)
        if not self.strip_accents and not self.do_lower_case:
            raise UserError("strip_accents needs do_lower_case")
        return self

    def require_unchanged_text(self, what: str) -> None:
        """Raise UserError unless text is taken as it is; `what`, for the message, does not change it."""
        for name, right in (("do_lower_case", False), ("strip_accents", True), ("basic_tokenize", True)):
            if getattr(self, name) != right:
                given, right = str(not right).lower(), str(right).lower()
                raise UserError(f"{name}={given}, but {what} takes text as it is; give {name}={right}")

    def updated(self, **values: bool) -> "TextSettings":
        """Give some settings other values, and those that then have no effect the value that says so.

        Args:
          values: names and values. They are kept: contradictions among them are left for `check`.
        """
        settings = self._replace(**values)
        if not settings.basic_tokenize and "do_lower_case" not in values:
            settings = settings._replace(do_lower_case=False)
        if not settings.do_lower_case and "strip_accents" not in values:
            settings = settings._replace(strip_accents=True)
        return settings

    @property
    def changed(self) -> dict[str, bool]:
        """The casing, and the other settings that are not the reference's."""
        defaults = TextSettings()
        return {
            name: value
            for name, value in self._asdict().items()
            if name == "do_lower_case" or value != getattr(defaults, name)
        }

    def __str__(self) -> str:
        """For messages: `"do_lower_case=true"`, and what else is not the reference's."""
        return ", ".join(f"{name}={str(value).lower()}" for name, value in self.changed.items())
