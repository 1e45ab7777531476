# made by docs/generate.py from trainer_hooks/compat/lightning/modules.py: do not edit
