"""Keywords of texts: by frequency, by RAKE, or out of the answer of a model."""

import re
from collections import Counter, defaultdict

from batonflow.retrieval.words import STOP_WORDS

__all__ = ["keywords_in_answer", "rake_keywords", "simple_extract_keywords"]

_WORD = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]+|[^\W\d_\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3][\w'-]*")
_BETWEEN = re.compile(r"[^\w\s'-]|\d+")


def plain_words(text: str) -> list[str]:
    """Return the words of a text in lower case; Chinese, Japanese and Korean texts give pairs of characters."""
    found: list[str] = []
    for word in _WORD.findall(text.lower()):
        is_pairs = "\u3040" <= word[0] <= "\ud7a3" and len(word) > 1
        found += [word[at : at + 2] for at in range(len(word) - 1)] if is_pairs else [word]
    return found


def simple_extract_keywords(
    text_chunk: str, max_keywords: int | None = None, filter_stopwords: bool = True
) -> set[str]:
    """Return the most frequent words of a text.

    Args:
        text_chunk: The text.
        max_keywords: The largest number of words; None for all.
        filter_stopwords: Whether to leave out words that are in every text.
    """
    words = [word for word in plain_words(text_chunk) if not (filter_stopwords and word in STOP_WORDS)]
    return {word for word, _ in Counter(words).most_common(max_keywords)}


def rake_keywords(text_chunk: str, max_keywords: int | None = None, expand_with_subtokens: bool = True) -> set[str]:
    """Return the phrases of a text that are made of words with many neighbours.

    The method is that of Rose and others, "Automatic Keyword Extraction from Individual Documents" (2010).

    Args:
        text_chunk: The text.
        max_keywords: The largest number of phrases; None for all.
        expand_with_subtokens: Whether to add the words of the phrases.
    """
    phrases: list[tuple[str, ...]] = []
    for piece in _BETWEEN.split(text_chunk.lower()):
        words: list[str] = []
        for word in [*plain_words(piece), ""]:
            if word and word not in STOP_WORDS:
                words.append(word)
            elif words:
                phrases.append(tuple(words))
                words = []
    degree, count = defaultdict[str, int](int), Counter[str]()
    for phrase in phrases:
        for word in phrase:
            degree[word] += len(phrase)
            count[word] += 1
    scores = {phrase: sum(degree[word] / count[word] for word in phrase) for phrase in dict.fromkeys(phrases)}
    best = sorted(scores, key=lambda phrase: -scores[phrase])[:max_keywords]
    return _with_words({" ".join(phrase) for phrase in best}) if expand_with_subtokens else {" ".join(p) for p in best}


def keywords_in_answer(answer: str, mark: str = "KEYWORDS:", lowercase: bool = True) -> set[str]:
    """Return the keywords in an answer such as ``KEYWORDS: moon, spring tides``, and their words."""
    _, said, listed = answer.rpartition(mark)
    found = {one.strip() for one in (listed if said else answer).split("\n")[0].split(",")}
    return _with_words({one.lower() if lowercase else one for one in found if one})


def _with_words(phrases: set[str]) -> set[str]:
    """Add the single words of phrases."""
    words = {word for phrase in phrases if " " in phrase for word in phrase.split() if word not in STOP_WORDS}
    return phrases | words
