"""Mentions that name nothing: empty ones, numbers, and what people write where they have no answer.

An encoder finds a nearest term for every string; these are told apart before it is asked.
"""

from __future__ import annotations

import re
import unicodedata

# What stands in for an answer, in the languages of the lists that hospitals keep.
_PLACEHOLDERS = """
n/a|n.a.|n. a.|na|nil|none|null|nan|empty|blank|missing|unknown|unk|not known|not applicable
not available|not specified|not stated|not recorded|not documented|not done|no data|no entry
no information|to be confirmed|to be determined|tbc|tbd|todo|test|xxx|xx|same|ditto|as above
k.a.|k. a.|ka|keine angabe|keine angaben|keine|nicht bekannt|unbekannt|nicht anwendbar|entfällt
nicht zutreffend|leer|fehlt|siehe oben|s.o.|s. o.|dito
s/o|sans objet|non applicable|non renseigné|non renseignée|non précisé|non précisée|aucun|aucune
inconnu|inconnue|néant|idem|nsp|voir ci-dessus
no aplica|no disponible|desconocido|desconocida|ninguno|ninguna|sin datos|sin especificar|ídem
non applicabile|sconosciuto|sconosciuta|nessuno|nessuna|non noto|non nota
não aplicável|não se aplica|desconhecido|desconhecida|nenhum|nenhuma|sem dados
niet van toepassing|n.v.t.|nvt|onbekend|geen|geen gegevens
nelze|neznámé|neuvedeno|není známo|bilinmiyor|yok|不明|なし|該当なし|无|不详|未知
"""
PLACEHOLDERS = frozenset(
    text for line in _PLACEHOLDERS.split("\n") for text in line.strip().split("|") if text
)
# Notes that send the reader elsewhere.
ELSEWHERE = re.compile(
    r"(please )?(see|refer to) (the )?"
    r"(attached|attachment|letter|report|above|below|notes?|file|chart|previous|comments?)\b"
    r"|siehe (anhang|anlage|brief|befund|bericht|oben|unten|akte)\b"
    r"|voir (le |la |les )?(pièce jointe|courrier|lettre|compte[- ]rendu|rapport|dossier|annexe)\b"
    r"|ver (el |la )?(adjunto|carta|informe|anexo)\b"
)


def why_unanswerable(mention: str) -> str:
    """Why no concept can be the answer to a mention, in a few words; "" where one can.

    No answer have: the empty string, one letter (but of scripts that write words in one sign, such
    as Chinese), what has no letters at all, and placeholders such as "n/a" or "see attached".
    """
    text = " ".join(unicodedata.normalize("NFKC", mention).lower().split())
    letters = [sign for sign in text if sign.isalpha()]
    if not text:
        return "empty"
    bare = text.strip(" .:;,!?*-_[](){}<>\"'")
    if text in PLACEHOLDERS or bare in PLACEHOLDERS or ELSEWHERE.match(bare):
        return "a placeholder"
    if not letters:
        return "a number" if any(sign.isnumeric() for sign in text) else "no letters"
    # Chinese and Japanese signs are letters without upper and lower case.
    if len(letters) == 1 and letters[0].upper() != letters[0].lower() and len(text) == 1:
        return "one letter"
    return ""
