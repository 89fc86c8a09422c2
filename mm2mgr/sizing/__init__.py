"""From measured rates to numbers with reasons. Everything here is pure: no files, no network, no clock."""
