"""`trainer-hooks sweep`: train a config with many values of its arguments, over Optuna."""
