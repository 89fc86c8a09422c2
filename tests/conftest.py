"""What every test starts from: Ctrl-C works. A run in a shell's background inherits it ignored, and so would its children."""

from __future__ import annotations

import signal

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
