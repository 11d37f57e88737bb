"""Cross models, tasks and settings, as a YAML file says.

The runs of a study are in one folder.
"""

from __future__ import annotations

from deepthink_cli.cli.about import about
from deepthink_cli.cli.command import HelpGroup, Program
from deepthink_cli.cli.study import list_studies, plot_study, report_study, show_study, validate_study
from deepthink_cli.cli.study_run import plan_study, run_study

studies = Program(cls=HelpGroup, help=__doc__, no_args_is_help=True)
about("study run example --scale small")(studies)
studies.command("list", epilog="Example: deepthink study list")(list_studies)
studies.command("show", epilog="Example: deepthink study show example > mine.yaml")(show_study)
studies.command("validate", epilog="Example: deepthink study validate mine.yaml")(validate_study)
studies.command("plan", epilog="Example: deepthink study plan example --json")(plan_study)
studies.command("run", epilog="Example: deepthink study run example --scale small -o runs/example")(run_study)
studies.command("report", epilog="Example: deepthink study report example --runs runs/example")(report_study)
studies.command("plot", epilog="Example: deepthink study plot example --runs runs/example -o figure.pdf")(plot_study)
