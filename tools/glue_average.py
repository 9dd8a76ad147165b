r"""Prints the table of GLUE from output folders of run_classifier.py: a row for each task, and the average.

python tools/glue_average.py --output_dirs='out/mrpc-seed*,out/cola,out/mnli' --table_format=markdown

The score of a task is GLUE's metric times 100, the mean over the task's folders (seeds), with their standard deviation.
The average is the mean over the tasks that have a folder; matched and mismatched MNLI make one task. WNLI counts only
with --count_wnli: GLUE's own average includes it, that of the BERT paper does not. AX never counts.
"""

from official_bert.config.run_configs import GlueAverageConfig
from official_bert.script import run_script


def main(config: GlueAverageConfig) -> None:
    """Runs the tool."""
    from official_bert.runs import glue_average

    glue_average.run(config)


if __name__ == "__main__":
    run_script(GlueAverageConfig, main, uses_tensorflow=False)
