"""Texts in capitals, which a model reads in small letters."""

import pytest

from capsule_mt.text.capitals import with_capitals, without_capitals


@pytest.mark.parametrize(
    ("text", "small"),
    [
        ("DER ALTE MANN SCHLÄFT. UND SIE?  JA!", "Der alte mann schläft. Und sie?  Ja!"),
        ("12 YEARS LATER", "12 years later"),
        ("NICHT {NAME} UND HTTPS://A.DE/B VON <B>FETT</B>", "Nicht {NAME} und HTTPS://A.DE/B von <B>fett</B>"),
        ("<g1>OPENING</g1> HOURS <br/>", "<g1>Opening</g1> hours <br/>"),
        ("PARKING", "Parking"),
        ("UNICEF", None),
        ("The END", None),
        ("IM JAHR \u0130Z\u0130N", None),  # small, its letters are more
        ("", None),
    ],
)
def test_texts_in_capitals(text, small):
    assert without_capitals(text) == small


def test_a_translation_in_capitals_has_as_many_letters():
    assert with_capitals("Große Hüte für {name} \ufb01x") == "GRO\u1e9eE HÜTE FÜR {name} \ufb01X"
