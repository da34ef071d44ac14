"""What all tests share: plans are kept in memory alone, not in the user's folder."""

import os

os.environ["PRIVOPT_CACHE"] = "off"
