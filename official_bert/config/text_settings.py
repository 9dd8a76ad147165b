"""`TextSettings`: text normalization before the vocabulary lookup, shared by flags, tokenizers and exports."""

from typing import NamedTuple

from official_bert.support.errors import UserError


class TextSettings(NamedTuple):
    """Text normalization settings, named like the flags and the arguments of `FullTokenizer`."""

    do_lower_case: bool = True  # whether to lowercase text and, unless `strip_accents` is false, strip accents
    # whether lowercasing decomposes characters and drops accents; otherwise `"É"` becomes `"é"`, and a Hangul
    # syllable stays one character
    strip_accents: bool = True
    # whether to clean text and split it at punctuation and CJK characters; otherwise it is only split at white
    # space
    basic_tokenize: bool = True
    tokenize_chinese_chars: bool = True  # whether each CJK character is a word
    strip_accents_only: bool = False  # whether to strip accents without lowercasing
    morphemes: str | None = None  # what splits text into words first; see `tokenization.word_splitters`

    @property
    def strips_accents(self) -> bool:
        """True if characters are decomposed and accents dropped."""
        return (self.do_lower_case and self.strip_accents) or self.strip_accents_only

    def check(self) -> "TextSettings":
        if self.do_lower_case and not self.basic_tokenize:
            raise UserError(
                "basic_tokenize=false takes words as they are and lowercases nothing; give do_lower_case=false"
            )
        if not self.strip_accents and not self.do_lower_case:
            raise UserError("strip_accents needs do_lower_case")
        if self.strip_accents_only and self.do_lower_case:
            raise UserError("strip_accents_only keeps capital letters; give do_lower_case=false")
        for name in ("strip_accents_only", "tokenize_chinese_chars"):
            if not self.basic_tokenize and getattr(self, name) != getattr(TextSettings(), name):
                raise UserError(f"{name} needs basic_tokenize")
        if self.basic_tokenize and (self.morphemes or "").startswith("mecab"):
            raise UserError(f"morphemes={self.morphemes} needs basic_tokenize=false and do_lower_case=false")
        return self

    def require_unchanged_text(self, what: str) -> None:
        """Raise `UserError` unless the settings leave text unchanged; the message names `what` as the reason."""
        for name, right in TextSettings(do_lower_case=False)._asdict().items():
            if getattr(self, name) != right:
                advice = "leave it out" if right is None else f"give {name}={str(right).lower()}"
                given = str(getattr(self, name)).lower()
                raise UserError(f"{name}={given}, but {what} takes text as it is; {advice}")

    def updated(self, **values: bool | str) -> "TextSettings":
        """Return a copy with some settings changed, and others reset to their defaults where they no longer apply."""
        settings = self._replace(**values)
        if not settings.basic_tokenize:
            unused = {"do_lower_case": False, "tokenize_chinese_chars": True, "strip_accents_only": False}
            settings = settings._replace(**unused | values)
        reset = {"strip_accents_only": False} if settings.do_lower_case else {"strip_accents": True}
        return settings._replace(**reset | values)

    @property
    def recorded(self) -> dict[str, bool | str]:
        """The settings as they are recorded: `morphemes` only if texts are split by it."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    @property
    def changed(self) -> dict[str, bool | str]:
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

    @property
    def flags(self) -> str:
        """Format `changed` for a command line: `"--do_lower_case=true"`."""
        return " ".join(f"--{name}={str(value).lower()}" for name, value in self.changed.items())
