"""What a scraper learns about the Slack channel."""

from tests.slack.conftest import Run
from tests.support.slack import BOT_TOKEN, LocalSlack


async def test_a_connected_channel_receives(run: Run) -> None:
    """So does the WebSocket beside it."""
    client = await (await run()).client()

    text = (await client.get("/metrics")).text

    assert 'parley_channel_receives{channel="slack"} 1.0' in text
    assert 'parley_channel_receives{channel="websocket"} 1.0' in text


async def test_a_failed_channel_does_not_receive(slack: LocalSlack, run: Run) -> None:
    """A deaf one never looks healthy; the others are not harmed."""
    slack.revoked[BOT_TOKEN] = "invalid_auth"
    daemon = await run(connected=False)
    await daemon.logged("channel failed")
    client = await daemon.client()

    text = (await client.get("/metrics")).text

    assert 'parley_channel_receives{channel="slack"} 0.0' in text
    assert 'parley_channel_receives{channel="websocket"} 1.0' in text
