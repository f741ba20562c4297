"""The page of analyses: no cell is empty without a reason, and numbers are those of the records."""

from lab.analyses import ANALYSES, CAPSNMT, GUIDED, OVERLAPS, table
from lab.records import Records


def test_numbers_come_from_the_records(tmp_path):
    records = Records(tmp_path)
    shares = [{"offset": offset, "past": 0.2 + 0.1 * offset, "future": 0.5, "words": 9} for offset in range(-3, 4)]
    records.keep("studies", {"name": GUIDED, "around_the_step": shares})
    routing = [{"decided": 0.1, "effective_capsules": 8.0}, {"decided": 0.734, "effective_capsules": 5.42}]
    records.keep("studies", {"name": CAPSNMT, "routings": {"encoder.aggregation": routing}})
    for record, rate in zip(OVERLAPS, (0.5, 0.6, 0.7), strict=True):
        records.keep("studies", {"name": record, "overlap_rates": {"past": rate, "future": rate - 0.1}})
    text = table(records)
    assert "PAST 0.10 / 0.20 / 0.30 / 0.40; FUTURE 0.50 / 0.50 / 0.50 / 0.50, 9 words" in text
    assert "73% beyond 0.1 and 0.9; 5.4 of 8 capsules in use" in text
    assert "PAST 0.60 (0.50 to 0.70), FUTURE 0.50 (0.40 to 0.60), three seeds" in text
    rows = [line.split("|")[1:-1] for line in text.strip().splitlines()[2:]]
    assert len(rows) == len(ANALYSES)
    assert all(cell.strip() for row in rows for cell in row[:4])
