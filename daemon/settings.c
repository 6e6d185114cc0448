/* SPDX-License-Identifier: Apache-2.0
 * What of the configuration a worker must know to schedule and to cache, as the object `settings` of the commands load and
 * configure; worker_settings.c reads it. Loop thread.
 */
#include "daemon/daemon.h"

static json_t *class_json(const struct conf_class *c)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I}", "ttft_ms", (json_int_t)c->ttft_ms, "tpot_ms",
		(json_int_t)c->tpot_ms, "max_waiting", (json_int_t)c->max_waiting, "max_waiting_tenant",
		(json_int_t)c->max_waiting_tenant, "max_waiting_bytes", (json_int_t)c->max_waiting_bytes);
}

json_t *settings_json(const struct conf *c)
{
	json_t *prefix = json_pack("{s:b, s:b, s:I, s:I, s:I, s:s}", "reuse", c->prefix.reuse,
		"share_tenants", c->prefix.share_tenants, "pinned_percent",
		(json_int_t)c->prefix.pinned_percent, "host_bytes", (json_int_t)c->prefix.host_bytes,
		"disk_bytes", (json_int_t)c->prefix.disk_bytes, "disk_dir", c->prefix.disk_dir);

	return json_pack("{s:I, s:I, s:I, s:f, s:f, s:b, s:f, s:o, s:o, s:o, s:I}", "max_step_ms",
		(json_int_t)c->scheduler.max_step_ms, "max_prefill_ms",
		(json_int_t)c->scheduler.max_prefill_ms, "aging_s", (json_int_t)c->scheduler.aging_s, "slack",
		c->scheduler.slack_percent / 100.0, "long_prompt_factor", c->scheduler.long_prompt_factor,
		"calibrate", c->scheduler.calibrate, "offline_min_share",
		c->offline_min_share_percent / 100.0, "online", class_json(&c->classes[WIRE_ONLINE]),
		"offline", class_json(&c->classes[WIRE_OFFLINE]), "prefix", prefix, "memory_limit",
		(json_int_t)c->memory.limit_bytes);
}
