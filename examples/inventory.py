"""The inventory monitor that some examples share: three sources are asked at once, their votes decide an order."""

import asyncio
from collections import Counter

from batonflow import Context, Event, StartEvent, StopEvent, Workflow, step


class AskShops(Event):
    sku: str


class AskWebsite(Event):
    sku: str


class AskForecast(Event):
    sku: str


class Vote(Event):
    source: str
    opinion: str


class ShopVote(Vote): ...


class WebsiteVote(Vote): ...


class ForecastVote(Vote): ...


class Decision(Event):
    sku: str
    opinion: str


class Warehouse:
    """Takes orders; a real one would talk to a supplier."""

    async def handle(self, sku: str, opinion: str) -> str:
        await asyncio.sleep(0.01)
        return f"ordered more {sku}" if opinion == "good" else f"cleared out {sku}"


class InventoryMonitor(Workflow):
    """Asks shops, website and forecast at the same time, and acts on the majority."""

    seconds = 0.1

    @step
    async def ask(self, ctx: Context, ev: StartEvent) -> AskShops | AskWebsite | AskForecast | None:
        await ctx.store.set("sku", ev.sku)
        ctx.send_event(AskShops(sku=ev.sku))
        ctx.send_event(AskWebsite(sku=ev.sku))
        ctx.send_event(AskForecast(sku=ev.sku))
        return None

    @step
    async def shops(self, ev: AskShops) -> ShopVote:
        await asyncio.sleep(self.seconds * 3)
        return ShopVote(source="shops", opinion="bad")

    @step
    async def website(self, ev: AskWebsite) -> WebsiteVote:
        await asyncio.sleep(self.seconds * 2)
        return WebsiteVote(source="website", opinion="good")

    @step
    async def forecast(self, ev: AskForecast) -> ForecastVote:
        await asyncio.sleep(self.seconds)
        return ForecastVote(source="forecast", opinion="bad")

    @step
    async def decide(self, ctx: Context, ev: ShopVote | WebsiteVote | ForecastVote) -> Decision | None:
        votes = ctx.collect_events(ev, [ShopVote, WebsiteVote, ForecastVote])
        if votes is None:
            return None
        opinions = Counter(str(vote.opinion) for vote in votes)
        print("votes:", dict(sorted(opinions.items())))
        return Decision(sku=await ctx.store.get("sku"), opinion=opinions.most_common(1)[0][0])

    @step
    async def act(self, ev: Decision) -> StopEvent:
        return StopEvent(result=await Warehouse().handle(ev.sku, ev.opinion))
