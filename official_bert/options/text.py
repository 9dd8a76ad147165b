"""The flags that say how text becomes ids."""

from official_bert.config.text_settings import TAKES_WORDS_AS_THEY_ARE, TextSettings
from official_bert.options.option import Options, option, options


@options(group="text")
class TextOptions(Options):
    """Flags that say what the tokenizer does to text; every script that reads text has them."""

    do_lower_case: bool = option(
        True, "Lowercase the text and strip accents; true for uncased models.", affects="model"
    )
    strip_accents: bool = option(
        True,
        "With --do_lower_case: strip accents, which also takes Hangul syllables apart.",
        only_with={"do_lower_case": (True,)},
        affects="model",
    )
    basic_tokenize: bool = option(
        True,
        "Clean the text and split it at punctuation and Chinese characters; otherwise it is split already: words are "
        "what stands between white space, and are looked up as they are.",
        not_with={"do_lower_case": TAKES_WORDS_AS_THEY_ARE},
        affects="model",
    )

    @property
    def text_settings(self) -> TextSettings:
        """These flags as one value."""
        return TextSettings(*(getattr(self, name) for name in TextSettings._fields))


@options(group="model")
class TokenizerOptions(TextOptions):
    """Flags that name a tokenizer; every script that turns text into ids has them."""

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
        "SentencePiece model, as of ALBERT's released models, instead of --vocab_file.",
        is_path=True,
        affects="data",
    )

    @property
    def tokenizer_file(self) -> str:
        """The one that is given."""
        return self.spm_model_file or self.vocab_file
