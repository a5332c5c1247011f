"""What a tree of Python means: which names, values, conditions and loops its parts are, across files too. No rule is here."""
