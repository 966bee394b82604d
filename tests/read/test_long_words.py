"""Words, values and patterns of extreme length."""

import indextables


def test_long_bounds_include_texts_with_the_last_character(tmp_path):
    last = "\U0010ffff"
    texts = ["prefix-12345" + last * 2, "prefix-12345", "prefix-12345" + last + "a", "q", "prefix-12346", "p"]
    table = indextables.write(
        tmp_path / "t",
        [{"id": i, "s": text} for i, text in enumerate(texts)],
        options={"indexing.typemap.s": "string"},
    )
    table.prewarm(segments=["TERM", "POSTINGS", "FASTFIELD"])
    for bound in ["prefix-12345" + last * 2 + "z" * 40, "prefix-12345" + "z" * 60, last * 60]:
        below = [i for i, text in enumerate(texts) if text.encode() <= bound.encode()]
        assert table.scan(columns=["id"], where=f"s <= '{bound}'")["id"].to_pylist() == below
        assert table.count(f"s <= '{bound}'") == len(below)
        assert table.count(f"NOT s <= '{bound}'") == len(texts) - len(below)
        query = f's INDEXQUERY \'s:["a" TO "{bound}"]\''
        assert table.scan(columns=["id"], where=query)["id"].to_pylist() == below
