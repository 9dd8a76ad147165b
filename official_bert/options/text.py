"""Flags for tokenization."""

from official_bert.config.text_settings import LOWERCASES, TAKES_WORDS_AS_THEY_ARE, TextSettings
from official_bert.options.option import Options, option, options


@options(group="text")
class TextOptions(Options):
    """Text normalization flags of every command that reads text."""

    do_lower_case: bool = option(
        True, "Lowercase the text and strip accents; true for uncased models.", affects="model"
    )
    strip_accents: bool = option(
        True,
        "With --do_lower_case: strip accents; this also decomposes Hangul syllables.",
        only_with={"do_lower_case": (True,)},
        affects="model",
    )
    basic_tokenize: bool = option(
        True,
        "Clean the text and split it at punctuation and Chinese characters; otherwise split it at white space only and "
        "look the words up unchanged.",
        not_with={"do_lower_case": TAKES_WORDS_AS_THEY_ARE},
        affects="model",
    )
    tokenize_chinese_chars: bool = option(
        True, "Make each Chinese character a word.", only_with={"basic_tokenize": (True,)}, affects="model"
    )
    strip_accents_only: bool = option(
        False,
        "Strip accents but keep capital letters.",
        only_with={"basic_tokenize": (True,)},
        not_with={"do_lower_case": LOWERCASES},
        affects="model",
    )

    @property
    def text_settings(self) -> TextSettings:
        """The `TextSettings` of these flags."""
        return TextSettings(*(getattr(self, name) for name in TextSettings._fields))


@options(group="model")
class TokenizerOptions(TextOptions):
    """Tokenizer flags of every command that converts text to ids."""

    vocab_file: str | None = option(
        None,
        "Vocabulary file, one wordpiece per line.",
        required=True,
        waived_with="spm_model_file",
        from_checkpoint=True,
        not_with={"spm_model_file": "--vocab_file cannot be used with --spm_model_file"},
        is_path=True,
        affects="data",
    )
    spm_model_file: str | None = option(
        None,
        "SentencePiece model, such as that of a released ALBERT, instead of --vocab_file.",
        is_path=True,
        affects="data",
    )

    @property
    def tokenizer_file(self) -> str:
        """The SentencePiece model or the vocabulary file, whichever is given."""
        return self.spm_model_file or self.vocab_file
