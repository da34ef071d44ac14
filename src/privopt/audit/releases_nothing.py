"""Public names that are no entries of the audit, and why."""

RELEASES_NOTHING = {
    "Dataset": "a list of files, read by fits that are entries",
    "__version__": "a text",
    "BoundedScaler": "learns nothing: its parameters are declared bounds",
    "Budget": "public numbers",
    "Certificate": "a statement about releases that were made",
    "Ledger": "keeps budgets and sees no records",
    "Participation": "a public rule",
    "PrivacyWarning": "a warning",
    "Problem": "public facts",
    "Refused": "an error",
    "SplineFeatures": "learns nothing: knots are equal between declared bounds",
    "auto": "sees public numbers alone",
    "check_pipeline": "looks at the classes of a pipeline's steps",
    "dataset": "lists files and reads their footers",
    "engines": "places where fits compute",
    "geometry": "public sets",
    "load": "reads a fitted model",
    "losses": "public functions",
    "plan": "sees public facts alone",
    "save": "writes a fitted model",
}
"""Public names that see no records, or give nothing away that was computed from them."""
