"""Baskets priced by pandas with the catalog of twelve suppliers, which is loaded in the first seconds."""

import sys
import time

import numpy as np
import pandas as pd

rng = np.random.default_rng(15)


def load_supplier(supplier: int, articles: int = 40_000) -> pd.DataFrame:
    time.sleep(0.15)
    return pd.DataFrame(
        {
            "article": np.arange(articles) + supplier * articles,
            "price": rng.gamma(3.0, 7.0, articles),
            "name": [f"article {supplier}-{number:06d}" for number in range(articles)],
        }
    )


def price_basket(catalog: pd.DataFrame, basket: pd.DataFrame) -> pd.Series:
    priced = basket.merge(catalog, on="article")
    priced["total"] = priced["price"] * priced["pieces"]
    return priced.groupby("customer")["total"].sum()


def main(baskets: int) -> None:
    catalog = pd.concat([load_supplier(supplier) for supplier in range(12)], ignore_index=True)
    revenue = 0.0
    for _ in range(baskets):
        basket = pd.DataFrame(
            {
                "article": rng.choice(len(catalog), 3_000),
                "pieces": rng.integers(1, 9, 3_000),
                "customer": rng.integers(0, 200, 3_000),
            }
        )
        revenue += price_basket(catalog, basket).sum()
    sys.stdout.write(f"{baskets} baskets, {revenue:,.0f}\n")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 365)
