"""The configuration file: what may stand in it (`keys`), where it is found (`files`), and what it says (`settings`)."""
