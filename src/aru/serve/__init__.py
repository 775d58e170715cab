"""The HTTP service: `aru serve model/ --state state.db`. Needs the extra `serve`; nothing else imports this package."""
