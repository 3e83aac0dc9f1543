"""The subcommands of `kt-lab`, one module each; kt_lab.cli has the table of them."""
