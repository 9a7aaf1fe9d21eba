"""The clerk's model sees no personal data, and the cashier of a dry run pays nothing."""

import asyncio

from custom_team import CASHIER, CLERK, Shop, build

from batonflow import ScriptedLLM

QUESTION = "Order A-17 is broken. My card is 4000 1234 5678 9010, my mail ann@example.com."


def answer(shop: Shop, *, live: bool) -> tuple[str, ScriptedLLM]:
    clerk = ScriptedLLM(CLERK)
    team = build(shop, live=live, clerk_llm=clerk, cashier_llm=ScriptedLLM(CASHIER))
    return str(team.run_sync(QUESTION)), clerk


def test_a_dry_run_pays_nothing_and_says_so() -> None:
    shop = Shop()
    said, _ = answer(shop, live=False)
    assert said == "Done: dry run: refund(order='A-17', amount=40)"
    assert shop.refunded == {}


def test_a_live_run_pays() -> None:
    shop = Shop()
    said, _ = answer(shop, live=True)
    assert said == "Done: refunded 40 euros for A-17"
    assert shop.refunded == {"A-17": 40}


def test_the_model_of_the_clerk_sees_no_personal_data() -> None:
    _, clerk = answer(Shop(), live=False)
    shown = "\n".join(str(message.content) for request in clerk.requests for message in request.messages)
    assert "My card is [hidden], my mail [hidden]." in shown
    assert "4000" not in shown
    assert "ann@" not in shown


def test_the_memory_keeps_the_question() -> None:
    async def question() -> str | None:
        handler = build(Shop()).run(QUESTION)
        await handler
        messages = await (await handler.ctx.store.get("memory")).aget_all()
        return str(messages[0].content)

    assert asyncio.run(question()) == QUESTION
