"""How rows are shown to people, whichever surface shows them: texts, questions, log lines, files, refreshing pages."""
