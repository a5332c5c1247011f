"""The server of the Model Context Protocol, asked by the official SDK."""

from importlib.util import find_spec

import pytest

NEEDS_SDK = pytest.mark.skipif(find_spec("mcp") is None, reason="no SDK of the Model Context Protocol: pip install mcp")
"""Found, not imported: that takes 0.6 s in each worker, of which one at most runs these tests."""
