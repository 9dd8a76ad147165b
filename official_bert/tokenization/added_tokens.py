"""Finds the added tokens of a vocabulary in text, as the library `tokenizers` does.

A token that is not `normalized` is found in the text as it is; the others are found in the remaining parts after
normalization. At each place the longest token counts, from left to right. White space around a token makes no
wordpieces, so `lstrip` and `rstrip` have no effect on ids.
"""

import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from official_bert.config.text_settings import TextSettings
from official_bert.support.errors import UserError
from official_bert.tokenization import characters
from official_bert.tokenization.hf_tokenizer import AddedToken

# Other_Alphabetic of Unicode that is not a mark: circled and squared letters.
_CIRCLED = frozenset(
    chr(code) for first, last in ((0x24B6, 0x24E9), (0x1F130, 0x1F149), (0x1F150, 0x1F169), (0x1F170, 0x1F189))
    for code in range(first, last + 1)
)  # fmt: skip
_JOINERS = "\u200c\u200d"


def is_of_word(character: str) -> bool:
    r"""Return True for the characters of `\w` in the regular expressions of `tokenizers`."""
    category = unicodedata.category(character)
    return category[0] in "LM" or category in ("Nd", "Nl", "Pc") or character in _CIRCLED or character in _JOINERS


def raw_tokens(added: Sequence[AddedToken]) -> dict[str, AddedToken]:
    """Return the tokens to find in text as it is."""
    return {token["content"]: token for token in added if not token["normalized"]}


def normalized_tokens(added: Sequence[AddedToken], settings: TextSettings, source: str) -> dict[str, AddedToken]:
    """Return the tokens to find in rewritten text, keyed by what they are there: `" < e1 > "` for `"<E1>"`."""
    found: dict[str, AddedToken] = {}
    for token in added:
        if not token["normalized"]:
            continue
        content = token["content"]
        rewritten = characters.rewrite(content, settings)
        is_exact = all(characters.clean(end).strip() for end in (content[0], content[-1])) and rewritten.strip()
        if not (is_exact if settings.basic_tokenize else len(content.split()) == 1):
            raise UserError(f"{source}: the added token {content!r:.80} is not supported with {settings}")
        if rewritten in found:
            raise UserError(
                f"{source}: the added tokens {found[rewritten]['content']!r:.80} and {content!r:.80} are the same with "
                f"{settings}"
            )
        found[rewritten] = token
    return found


class TokenFinder:
    """Splits text at tokens."""

    def __init__(self, tokens: Mapping[str, AddedToken], *, is_spaced: bool):
        """Prepare the search."""
        self.tokens = tokens  # what to find, and the token that it is
        self._is_spaced = is_spaced
        self._pattern = re.compile("|".join(map(re.escape, sorted(tokens, key=len, reverse=True))))

    def split(self, text: str) -> Iterator[tuple[str | None, int, int]]:
        """Return the parts of a text in order: an added token or None, start and end."""
        last = 0
        for match in self._pattern.finditer(text):
            token, (start, end) = self.tokens[match.group()], match.span()
            if token["single_word"] and (
                self._is_word(text[max(start - 2, 0) : start][::-1]) or self._is_word(text[end : end + 2])
            ):
                continue
            if last < start:
                yield None, last, start
            yield token["content"], start, end
            last = end
        if last < len(text):
            yield None, last, len(text)

    def _is_word(self, beside: str) -> bool:
        """Return True if the character beside a match is of a word; the nearest comes first."""
        if self._is_spaced and beside[1:] and beside[0] == " " and unicodedata.category(beside[1]) == "Pc":
            return True  # the space is that of the punctuation
        return beside != "" and is_of_word(beside[0])
