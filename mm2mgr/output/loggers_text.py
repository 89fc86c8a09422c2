"""The levels of loggers on a terminal."""

from __future__ import annotations

from mm2mgr.operations.loggers import LoggersReport
from mm2mgr.output.console import STYLES, say, say_command, talk
from mm2mgr.output.history_text import say_unrecorded
from mm2mgr.text import visible


def say_loggers(report: LoggersReport) -> None:
    """Print levels, or what was set and how to set it back; workers that differ or did not answer are named."""
    levels = {name: report.levels().get(name) for name in report.set} if report.set else report.levels()
    if report.set:
        for worker in report.workers:
            for name in worker.written:
                say(f"~ {worker.worker}: {name} {worker.level_of(name)} -> {report.set[name]}")
    else:
        _say_levels({name: of_workers or {} for name, of_workers in levels.items()})
    for worker in report.workers:
        if worker.failure:
            say(f"! {worker.worker}: {worker.failure}", STYLES["failed"])
        elif not report.set and not worker.levels:
            say(f"! {worker.worker}: it has no loggers to show", STYLES["warning"])
    for name, near in report.unknown_names().items():
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        say(f"no class of these workers has logged under {visible(name)} so far{meant}", STYLES["warning"])
    if report.unlisted:
        say(f"idle workers may be missing: {report.unlisted}")
    if commands := report.commands_back():
        say("Loggers below got the same level, until the worker restarts. To set back what was before:")
        for command in commands:
            say_command(command)
        say_unrecorded(report.unrecorded)
    elif not report.set:
        say("Loggers below have the same level. Levels that were set end when the worker restarts.")


def say_cut_short(report: LoggersReport) -> None:
    """Print on stderr how to set back what may have been set before an interrupt."""
    talk("interrupted: levels may be set on some workers. To set back what was before:", STYLES["warning"])
    for command in report.commands_back():
        talk(command, None)


def _say_levels(levels: dict[str, dict[str, str]]) -> None:
    widest = max(map(len, levels), default=0)
    for name, of_workers in levels.items():
        if len(set(of_workers.values())) == 1:
            say(f"  {name:{widest}}  {next(iter(of_workers.values()))}")
        else:
            shown = ", ".join(f"{level} on {worker}" for worker, level in of_workers.items())
            say(f"! {name:{widest}}  differs: {shown}", STYLES["warning"])
