"""Slack: people and channels of a workspace talk to the gateway. See docs/slack.md."""
