"""Three slow sources asked concurrently, their answers collected: the whole takes as long as the slowest of them."""

import asyncio
import time

from inventory import InventoryMonitor


async def main() -> None:
    began = time.perf_counter()
    print(await InventoryMonitor(timeout=20).run(sku="umbrella"))
    one_after_another = InventoryMonitor.seconds * 6
    print("at once" if time.perf_counter() - began < one_after_another * 0.9 else "one after another")


asyncio.run(main())
