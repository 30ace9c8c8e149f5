"""isotrain: does making representations isotropic while fine-tuning help, where, and why?

The path of one run:

    app.py                        the command: Hydra composes and launches
    config/                       configuration: schema, validation, rules
    run.py                        one run: seed, build, evaluate, fit, test, record
    build.py                      builds the parts of a run from its configuration
    training/module.py            the training step
    model/isotropic_model.py      encoder -> isotropy layers -> pooling -> head
    transforms/, objectives/      the isotropy layers and the losses that act in the step
    training/monitor/             the isotropy of every layer, measured at each evaluation
    runs/                         what a run leaves on disk

The core is what one run needs; it never imports an app. Apps use finished runs or start many:
`studies`, `reporting`, `pages`, `analysis`, `export`, `plugins`, `doctor`, `demo`.
`docs/code.md` walks one batch through the files.

To add a layer, a loss, a metric, a task or an encoder: one file in its folder, one yaml in
`conf/<group>/`, one test. No existing file changes; the folder's docstring says what to inherit.
"""
