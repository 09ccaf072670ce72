"""What a person does and sees on the page."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Locator, Page, expect

PATIENCE_MS = 30_000


class Screen:
    def __init__(self, page: Page) -> None:
        self.page = page
        self.composer = page.get_by_label("Message", exact=True)
        self.questions = page.locator("article.mine .bubble")
        self.answers = page.locator("article.answer .md")

    async def say(self, text: str) -> None:
        await self.composer.fill(text)
        await self.composer.press("Enter")

    async def shows_answer(self, text: str, at: int = -1) -> None:
        answer = self.answers.last if at < 0 else self.answers.nth(at)
        await expect(answer).to_have_text(text, timeout=PATIENCE_MS)

    async def shows_questions(self, *texts: str) -> None:
        await expect(self.questions).to_have_text(list(texts), timeout=PATIENCE_MS)

    async def shows(self, text: str) -> None:
        await expect(self.page.get_by_text(text).first).to_be_visible(timeout=PATIENCE_MS)

    async def is_connected(self) -> None:
        await self.shows("Connected")

    def delivery(self, at: int = -1) -> Locator:
        found = self.page.locator(".delivery")
        return found.last if at < 0 else found.nth(at)

    async def picture(self, path: Path) -> None:
        await self.page.screenshot(path=path)
