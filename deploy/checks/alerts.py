"""alerts.yml, the configuration of Prometheus, and the dashboard, with promtool. Every alert fires, and none does at rest."""

import json
import shutil
import urllib.parse

import yaml

from support import DEPLOY, directory, expect, need, run

# A healthy node of one shard, each minute for two hours.
HEALTHY = {
    'ledger_transparency_refused{shard="1",instance="a"}': "0x120",
    'ledger_transparency_refusals_total{shard="1",instance="a"}': "0x120",
    'ledger_master_key_usable{instance="a"}': "1x120",
    'ledger_delivery_health_missing{shard="1",instance="a"}': "0x120",
    'ledger_log_head_position{shard="1",instance="a"}': "1+100x120",
    'ledger_log_head_ahead_seconds{shard="1",instance="a"}': "0x120",
    'ledger_clock_ahead_seconds{instance="a"}': "1x120",
    'ledger_loop_heartbeat_age_seconds{instance="a",loop="writer"}': "1x120",
    'ledger_http_requests_total{status="200",instance="a"}': "0+600x120",
    'ledger_http_requests_total{status="503",instance="a"}': "0+1x120",
    'ledger_http_request_seconds_bucket{le="0.1",instance="a"}': "0+600x120",
    'ledger_http_request_seconds_bucket{le="5",instance="a"}': "0+600x120",
    'ledger_http_request_seconds_bucket{le="+Inf",instance="a"}': "0+600x120",
    'ledger_writer_queue_depth{shard="1",instance="a"}': "10x120",
    'ledger_head_lock_seconds_bucket{le="0.1",instance="a"}': "0+600x120",
    'ledger_head_lock_seconds_bucket{le="5",instance="a"}': "0+600x120",
    'ledger_head_lock_seconds_bucket{le="+Inf",instance="a"}': "0+600x120",
    'ledger_handed_over_total{shard="1",outcome="answered",instance="a"}': "0+600x120",
    # One leader has died a moment ago.
    'ledger_handed_over_total{shard="1",outcome="unknown",instance="a"}': "0x108 64x11",
    'ledger_projection_lag_seconds{projection="deliveries",shard="1",instance="a"}': "1x120",
    'ledger_orders_unqueued{shard="1",instance="a"}': "5x120",
    'ledger_orders_taken_up_total{shard="1",instance="a"}': "0+600x120",
    'ledger_deliveries_due{shard="1",instance="a"}': "100x120",
    'ledger_orders_out_of_stock{shard="1",instance="a"}': "0x120",
    'ledger_stock_low{instance="a"}': "0x120",
    'ledger_supplier_failures{supplier="acme",instance="a"}': "4x120",
    'ledger_supplier_failures{supplier="idle",instance="a"}': "5x120",
    'ledger_purchases_open{supplier="acme",instance="a"}': "1x120",
    'ledger_purchases_open{supplier="idle",instance="a"}': "0x120",
    'ledger_purchases_oldest_seconds{supplier="acme",instance="a"}': "3600x120",
}
# What differs when an alert fires. A series without values does not exist.
BAD = {
    "LedgerTreeRefused": {'ledger_transparency_refused{shard="1",instance="a"}': "1x120"},
    "LedgerMasterKeyUnusable": {'ledger_master_key_usable{instance="a"}': "0x120"},
    "LedgerDeliveryMissing": {'ledger_delivery_health_missing{shard="1",instance="a"}': "1x120"},
    "LedgerDeliveryHealthUnknown": {'ledger_delivery_health_missing{shard="1",instance="a"}': ""},
    "LedgerHeadAheadOfClock": {'ledger_log_head_ahead_seconds{shard="1",instance="a"}': "6x120"},
    "LedgerClockJumped": {'ledger_clock_ahead_seconds{instance="a"}': "3601x120"},
    "LedgerLoopStalled": {'ledger_loop_heartbeat_age_seconds{instance="a",loop="writer"}': "46x120"},
    "LedgerRequestsFail": {'ledger_http_requests_total{status="503",instance="a"}': "0+10x120"},
    "LedgerRequestsSlow": {'ledger_http_request_seconds_bucket{le="0.1",instance="a"}': "0+500x120"},
    "LedgerQueueFills": {'ledger_writer_queue_depth{shard="1",instance="a"}': "2049x120"},
    "LedgerHeadHeld": {'ledger_head_lock_seconds_bucket{le="0.1",instance="a"}': "0+500x120"},
    "LedgerHandoversUnknown": {'ledger_handed_over_total{shard="1",outcome="unknown",instance="a"}': "0+1x120"},
    "LedgerProjectionBehind": {'ledger_projection_lag_seconds{projection="deliveries",shard="1",instance="a"}': "61x120"},
    "LedgerOrdersWait": {'ledger_orders_taken_up_total{shard="1",instance="a"}': "7x120"},
    "LedgerDeliveriesPile": {'ledger_deliveries_due{shard="1",instance="a"}': "10001x120"},
    "LedgerOutOfStock": {'ledger_orders_out_of_stock{shard="1",instance="a"}': "1x120"},
    "LedgerStockLow": {'ledger_stock_low{instance="a"}': "1x120"},
    "LedgerSupplierFails": {'ledger_supplier_failures{supplier="acme",instance="a"}': "5x120"},
    "LedgerSupplierOverdue": {'ledger_purchases_oldest_seconds{supplier="acme",instance="a"}': "3601x120"},
    "LedgerDown": {'ledger_log_head_position{shard="1",instance="a"}': ""},
}


def rules():
    groups = yaml.safe_load((DEPLOY / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def case(series, firing):
    firing = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in firing]
    query = {"expr": 'group by (alertname) (ALERTS{alertstate="firing"})', "eval_time": "110m", "exp_samples": firing}
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items() if values],
        "promql_expr_test": [query],
    }


def fire():
    names = [rule["alert"] for rule in rules()]
    expect(sorted(names) == sorted(BAD), f"the check knows {sorted(BAD)}, not {sorted(names)}")
    cases = [case(HEALTHY, [])] + [case({**HEALTHY, **bad}, [name]) for name, bad in BAD.items()]
    with directory() as where:
        shutil.copy(DEPLOY / "alerts.yml", where)
        described = {"rule_files": ["alerts.yml"], "evaluation_interval": "1m", "tests": cases}
        (where / "cases.yml").write_text(yaml.safe_dump(described))
        run(need("promtool"), "test", "rules", where / "cases.yml")


def configuration():
    """The rules, and the configuration of compose.yaml, which names them."""
    promtool = need("promtool")
    with directory() as where:
        for file in ("alerts.yml", "compose/prometheus.yml"):
            shutil.copy(DEPLOY / file, where)
        run(promtool, "check", "rules", where / "alerts.yml")
        run(promtool, "check", "config", where / "prometheus.yml")


def board():
    return json.loads((DEPLOY / "dashboard.json").read_text())


def queries():
    """Returns the queries of the dashboard, with the interval that Grafana fills in."""
    targets = [target for panel in board()["panels"] for target in panel.get("targets", [])]
    return [target["expr"].replace("$__rate_interval", "1m") for target in targets]


def dashboard():
    """The dashboard finds the data source that compose.yaml provisions, by its type."""
    found = board()
    variables = {variable["name"]: variable for variable in found["templating"]["list"]}
    sources = yaml.safe_load((DEPLOY / "compose/grafana/datasource.yml").read_text())["datasources"]
    expect(variables["source"]["type"] == "datasource", "the dashboard has no variable for its data source")
    expect(variables["source"]["query"] in [source["type"] for source in sources], "no data source has the dashboard's type")
    uids = {panel["datasource"]["uid"] for panel in found["panels"] if "datasource" in panel}
    expect(uids == {"${source}"}, f"panels use the data sources {uids}")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    hosts = {urllib.parse.urlsplit(source["url"]).hostname for source in sources}
    expect(hosts <= set(services), f"data sources are at {hosts}, of which compose.yaml has not all")
    folder = yaml.safe_load((DEPLOY / "compose/grafana/dashboards.yml").read_text())["providers"][0]["options"]["path"]
    expect(any(f":{folder}/dashboard.json:" in mount for mount in services["grafana"]["volumes"]), "the dashboard is not where Grafana looks for it")


def checks(_program, report):
    report("promtool accepts the rules and the configuration of Prometheus", configuration)
    report("every alert fires when it should, and none at rest", fire)
    report("Grafana finds the dashboard and its data source", dashboard)
