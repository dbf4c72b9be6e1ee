"""Colours of the parts of a step, the same in every picture."""

# Okabe and Ito's palette and its neighbours, told apart by people who see fewer colours, on light and on dark grounds.
PARTS = {
    "compute": "#009E73",
    "communication": "#0072B2",
    "communication_wait": "#CC79A7",
    "copy": "#56B4E9",
    "dataloader": "#D55E00",
    "host-sync": "#E69F00",
    "launch": "#B8A900",
    "python": "#8C6D31",
    "memory-management": "#A05195",
    "unexplained": "#999999",
}
