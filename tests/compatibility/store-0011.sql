BEGIN TRANSACTION;
CREATE TABLE agents (
	agent TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	definition TEXT NOT NULL, 
	epoch BIGINT NOT NULL, 
	activation_id TEXT, 
	state TEXT NOT NULL, 
	created_at BIGINT NOT NULL, lineage TEXT, 
	PRIMARY KEY (agent)
);
INSERT INTO "agents" VALUES('default/trader:AAPL','default','trader',1,'act_1','{"recent_outcomes":[],"runs":0,"breakers":[],"paces":[],"pulse":null}',1795249800000000,NULL);
INSERT INTO "agents" VALUES('default/trader:MSFT','default','trader',1,'act_o','{"recent_outcomes":["did it"],"runs":1,"breakers":[],"paces":[],"pulse":null}',1795249800000000,'{"root_run":"run_1","parent_run":"run_1","parent":"trader:AAPL","depth":1,"role":"worker","grants":[["*"],["code.*","mcp.*"]],"named_tools":true}');
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0011');
CREATE TABLE approvals (
	approval_id TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	status TEXT NOT NULL, 
	requested_at BIGINT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	request TEXT NOT NULL, 
	decision TEXT, 
	decided_at BIGINT, 
	PRIMARY KEY (approval_id)
);
INSERT INTO "approvals" VALUES('apr_a','default','default/trader:AAPL','run_1','pending',1795249800000000,1795336200000000,'{"approval_id":"apr_a","call_id":"a","tool":"mail.send","description":"Send a mail.","permission":"write","tags":["dangerous","network"],"reason":"dangerous tools ask","arguments":{"to":"张三\u0000","n":[1,null]},"written":"{\"to\": 1}","input_schema":{"type":"object"},"target":"{\"to\":\"张三\"}","cwd":"/work","hooks":[{"hook":"app.check","verdict":"allowed"}],"trigger":"api","source":"run_0","parent":"","started_as":"","expires_at":"2026-11-22T08:30:00+00:00"}',NULL,NULL);
CREATE TABLE blobs (
	hash TEXT NOT NULL, 
	content TEXT NOT NULL, 
	PRIMARY KEY (hash)
);
CREATE TABLE budget_reservations (
	reservation_id TEXT NOT NULL, 
	account TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	amount BIGINT NOT NULL, 
	PRIMARY KEY (reservation_id, account)
);
INSERT INTO "budget_reservations" VALUES('res_1','acct','run_o2',40);
CREATE TABLE budgets (
	account TEXT NOT NULL, 
	used BIGINT NOT NULL, 
	reserved BIGINT NOT NULL, 
	alerted BIGINT NOT NULL, 
	expires_at BIGINT, 
	PRIMARY KEY (account)
);
INSERT INTO "budgets" VALUES('acct',0,40,0,1795336200000000);
CREATE TABLE callbacks (
	callback_id TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	url TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	status TEXT NOT NULL, 
	attempts BIGINT NOT NULL, 
	next_try_at BIGINT, 
	tried_at BIGINT, 
	problem TEXT NOT NULL, 
	delivered_at BIGINT, 
	version BIGINT NOT NULL, 
	changed_by TEXT NOT NULL, host TEXT DEFAULT '' NOT NULL, 
	PRIMARY KEY (callback_id)
);
INSERT INTO "callbacks" VALUES('cb_9ad6c5ab52376b7e1edcee0514','default','default/trader:MSFT','run_o1','https://example.org/ended',1795249800000000,'pending',0,1795249800000000,NULL,'""',NULL,2,'','example.org');
CREATE TABLE idempotency_keys (
	"key" TEXT NOT NULL, 
	body_hash TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	expires_at BIGINT NOT NULL, 
	PRIMARY KEY ("key")
);
CREATE TABLE journal (
	run_id TEXT NOT NULL, 
	seq BIGINT NOT NULL, 
	kind TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	data TEXT NOT NULL, 
	PRIMARY KEY (run_id, seq)
)
 WITHOUT ROWID

;
INSERT INTO "journal" VALUES('run-sch_1-35',1,'run_queued',1795250100000000,'{"trigger":"schedule_cron","focus":"看盘"}');
INSERT INTO "journal" VALUES('run_1',1,'run_queued',1795249800000000,'{"trigger":"api","focus":"看看行情"}');
INSERT INTO "journal" VALUES('run_1',2,'run_started',1795249800000000,'{"epoch":1}');
INSERT INTO "journal" VALUES('run_1',3,'approval_requested',1795249800000000,'{"at":0}');
INSERT INTO "journal" VALUES('run_1',4,'run_waiting',1795249800000000,'{"at":1}');
INSERT INTO "journal" VALUES('run_1_a',1,'run_queued',1795249800000000,'{"trigger":"api","focus":"看看行情"}');
INSERT INTO "journal" VALUES('run_o1',1,'run_queued',1795249800000000,'{"trigger":"agent","focus":""}');
INSERT INTO "journal" VALUES('run_o1',2,'run_started',1795249800000000,'{"epoch":1}');
INSERT INTO "journal" VALUES('run_o1',3,'model_replied',1795249800000000,'{"at":0}');
INSERT INTO "journal" VALUES('run_o1',4,'run_finished',1795249800000000,'{"at":0}');
INSERT INTO "journal" VALUES('run_o2',1,'run_queued',1795249800000000,'{"trigger":"api","focus":"看看行情"}');
INSERT INTO "journal" VALUES('run_o2',2,'run_started',1795249800000000,'{"epoch":1}');
INSERT INTO "journal" VALUES('run_o3',1,'run_queued',1795249800000000,'{"trigger":"api","focus":"看看行情"}');
CREATE TABLE ledger (
	id INTEGER NOT NULL, 
	tenant TEXT NOT NULL, 
	writer TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	record_id TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	run_id TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	data TEXT NOT NULL, 
	previous_hash TEXT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (id)
);
INSERT INTO "ledger" VALUES(1,'default','keeper-a',1,'rec_1','default/trader:MSFT','run_1','decision',1795249800000001,'{"a":["理由\u0000",{"b":-0.0,"y":null}],"n":1,"z":1.0}','26e908d20b8fbcefa4d83a5a052c0deedf1ac0689645e4218a13f3127dc30a0c','9c6556586e62c1d7f848b3ff79c57ebb39bbe2bbcc9de5cd092aa01de77304c1');
INSERT INTO "ledger" VALUES(2,'default','keeper-a',2,'rec_2','default/trader:AAPL','run_0','decision',1795249800000002,'{"a":["理由\u0000",{"b":-0.0,"y":null}],"n":2,"z":1.0}','9c6556586e62c1d7f848b3ff79c57ebb39bbe2bbcc9de5cd092aa01de77304c1','879efd0342248fba64e951068fff82121924e08bc8d5e5acae0c2e24ed2019f2');
INSERT INTO "ledger" VALUES(3,'default','keeper-a',3,'rec_3','default/trader:AAPL','run_1','decision',1795249800000003,'{"a":["理由\u0000",{"b":-0.0,"y":null}],"n":3,"z":1.0}','879efd0342248fba64e951068fff82121924e08bc8d5e5acae0c2e24ed2019f2','2ced209b899fccbc0cd79736540f325927554752c2a257532cfd2a45753e8fed');
CREATE TABLE ledger_heads (
	tenant TEXT NOT NULL, 
	writer TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	hash TEXT NOT NULL, 
	PRIMARY KEY (tenant, writer)
);
INSERT INTO "ledger_heads" VALUES('default','keeper-a',3,'2ced209b899fccbc0cd79736540f325927554752c2a257532cfd2a45753e8fed');
CREATE TABLE probes (
	writer TEXT NOT NULL, 
	written BIGINT NOT NULL, 
	PRIMARY KEY (writer)
);
CREATE TABLE runs (
	seq INTEGER NOT NULL, 
	run_id TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	"trigger" TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	status TEXT NOT NULL, 
	started_at BIGINT, 
	finished_at BIGINT, 
	cancel_requested BOOLEAN NOT NULL, 
	claimed_epoch BIGINT NOT NULL, 
	result TEXT, rank BIGINT DEFAULT '0' NOT NULL, deadline BIGINT, merge_key TEXT, interrupted_by TEXT, reserves BOOLEAN DEFAULT 0 NOT NULL, awaits TEXT, payload TEXT, 
	PRIMARY KEY (seq), 
	UNIQUE (run_id)
);
INSERT INTO "runs" VALUES(1,'run_1','default','default/trader:AAPL','{"kind":"api","focus":"看看行情","source":"","merged":1,"lineage":null,"traceparent":"","session":"","user":""}',1795249800000000,'waiting',1795249800000000,NULL,0,1,NULL,0,NULL,NULL,NULL,0,NULL,'{"价格":7}');
INSERT INTO "runs" VALUES(2,'run_o1','default','default/trader:MSFT','{"kind":"agent","focus":"","source":"","merged":1,"lineage":{"root_run":"run_1","parent_run":"run_1","parent":"trader:AAPL","depth":1,"role":"worker","grants":[["*"],["code.*","mcp.*"]],"named_tools":true},"traceparent":"","session":"","user":""}',1795249800000000,'completed',1795249800000000,1795249800000000,0,1,'{"status":"completed","turns":1,"tool_calls":0,"final_text":"好","tools_called":[],"duration_ms":0,"usage":{"prompt_tokens":10,"completion_tokens":5,"cached_tokens":0,"cost":0.25},"model":"","scripted":false,"error":null}',0,NULL,NULL,NULL,0,NULL,'{"lineage":{}}');
INSERT INTO "runs" VALUES(3,'run_o2','default','default/trader:MSFT','{"kind":"api","focus":"看看行情","source":"","merged":1,"lineage":null,"traceparent":"","session":"","user":""}',1795249800000000,'running',1795249800000000,NULL,0,1,NULL,0,NULL,NULL,NULL,1,NULL,'null');
INSERT INTO "runs" VALUES(4,'run_o3','default','default/trader:MSFT','{"kind":"api","focus":"看看行情","source":"","merged":1,"lineage":null,"traceparent":"","session":"","user":""}',1795249800000000,'queued',NULL,NULL,0,0,NULL,0,NULL,NULL,NULL,0,NULL,'null');
INSERT INTO "runs" VALUES(5,'run-sch_1-35','default','default/trader:AAPL','{"kind":"schedule_cron","focus":"看盘","source":"sch_1","merged":1,"lineage":null,"traceparent":"","session":"","user":""}',1795250100000000,'queued',NULL,NULL,0,0,NULL,0,NULL,NULL,NULL,0,NULL,'null');
INSERT INTO "runs" VALUES(6,'run_1_a','default','default/trader:AAPL','{"kind":"api","focus":"看看行情","source":"","merged":1,"lineage":null,"traceparent":"","session":"","user":""}',1795249800000000,'queued',NULL,NULL,0,0,NULL,0,NULL,NULL,NULL,0,NULL,'null');
CREATE TABLE schedules (
	schedule_id TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	kind TEXT NOT NULL, 
	rule TEXT NOT NULL, 
	created_at BIGINT NOT NULL, 
	created_by_run TEXT, 
	status TEXT NOT NULL, 
	next_fire_at BIGINT, paused_until BIGINT, 
	PRIMARY KEY (schedule_id)
);
INSERT INTO "schedules" VALUES('sch_1','default/trader:AAPL','cron','{"focus":"看盘\u0000","cron_expression":"*/5 * * * *","timezone":"Asia/Shanghai","interval_seconds":0,"jitter_seconds":0,"overlap":"buffer_one","catch_up_seconds":null,"task_type":"行情"}',1795249800000000,NULL,'active',1795250700000000,NULL);
INSERT INTO "schedules" VALUES('sch_2','default/trader:AAPL','cron','{"focus":"看盘\u0000","cron_expression":"*/5 * * * *","timezone":"Asia/Shanghai","interval_seconds":0,"jitter_seconds":0,"overlap":"buffer_one","catch_up_seconds":null,"task_type":"行情"}',1795249800000000,NULL,'paused',1795250100000000,NULL);
CREATE TABLE tasks (
	task_id TEXT NOT NULL, 
	agent TEXT NOT NULL, 
	version BIGINT NOT NULL, 
	created_at BIGINT NOT NULL, 
	updated_at BIGINT NOT NULL, 
	data TEXT NOT NULL, 
	PRIMARY KEY (task_id)
);
INSERT INTO "tasks" VALUES('task_1','default/trader:AAPL',1,1795249800000000,1795249800000000,'{"title":"比较","goal":"目标\u0000","status":"open","result":"","steps":[{"step_id":"a","title":"first","description":"详细","depends_on":[],"status":"pending","claim":null,"result":"done"},{"step_id":"b","title":"second","description":"","depends_on":["a"],"status":"pending","claim":{"agent":"clerk:trader.x","run_id":"run_a","key":"key"},"result":""}],"applied":["k1","k2"]}');
CREATE TABLE ticks (
	firing_id TEXT NOT NULL, 
	schedule_id TEXT NOT NULL, 
	due_at BIGINT NOT NULL, 
	outcome TEXT NOT NULL, 
	at BIGINT NOT NULL, 
	run_id TEXT, 
	reason TEXT NOT NULL, 
	last_due_at BIGINT, 
	count BIGINT NOT NULL, 
	PRIMARY KEY (firing_id)
);
INSERT INTO "ticks" VALUES('fire-sch_1-35','sch_1',1795250100000000,'fired',1795250100000000,'run-sch_1-35','"原因"',1795250100000000,2);
CREATE TABLE webhook_deliveries (
	delivery_id TEXT NOT NULL, 
	tenant TEXT NOT NULL, 
	source TEXT NOT NULL, 
	receipt TEXT NOT NULL, 
	received_at BIGINT NOT NULL, 
	status TEXT NOT NULL, 
	reason TEXT NOT NULL, 
	agent TEXT, 
	run_id TEXT, 
	headers TEXT NOT NULL, 
	whole BOOLEAN NOT NULL, 
	body TEXT NOT NULL, event TEXT, failures BIGINT DEFAULT '0' NOT NULL, 
	PRIMARY KEY (delivery_id)
);
INSERT INTO "webhook_deliveries" VALUES('whd_1','default','shop','rcp_a',1795249800000000,'triggered','""','default/trader:AAPL','run_1_a','{"x-event":"order"}',1,'"{\"价格\": \"nul \\u0000\"}\u0000"',NULL,0);
CREATE INDEX agents_by_tenant ON agents (tenant, agent);
CREATE INDEX runs_by_agent ON runs (agent, seq);
CREATE INDEX runs_by_tenant ON runs (tenant, seq);
CREATE INDEX runs_by_status ON runs (tenant, status, seq);
CREATE UNIQUE INDEX ledger_chain ON ledger (tenant, writer, position);
CREATE INDEX ledger_by_time ON ledger (tenant, at, id);
CREATE INDEX ledger_by_agent ON ledger (agent, at, id);
CREATE UNIQUE INDEX ledger_by_run ON ledger (run_id, record_id);
CREATE INDEX ledger_by_kind ON ledger (tenant, kind, at, id);
CREATE INDEX schedules_due ON schedules (next_fire_at) WHERE status = 'active';
CREATE INDEX ticks_by_schedule ON ticks (schedule_id, due_at);
CREATE INDEX ticks_by_run ON ticks (run_id);
CREATE INDEX idempotency_keys_expiry ON idempotency_keys (expires_at);
CREATE INDEX runs_mergeable ON runs (agent, merge_key) WHERE status = 'queued' AND merge_key IS NOT NULL;
CREATE TRIGGER ledger_no_update BEFORE UPDATE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: its records are never changed or removed'); END;
CREATE TRIGGER ledger_no_delete BEFORE DELETE ON ledger BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: its records are never changed or removed'); END;
CREATE TRIGGER ledger_no_replace BEFORE INSERT ON ledger WHEN EXISTS (
    SELECT 1 FROM ledger WHERE id = NEW.id
    UNION ALL SELECT 1 FROM ledger WHERE tenant = NEW.tenant AND writer = NEW.writer AND position = NEW.position
    UNION ALL SELECT 1 FROM ledger WHERE run_id = NEW.run_id AND record_id = NEW.record_id
) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: its records are never changed or removed'); END;
CREATE TRIGGER ledger_heads_move_on BEFORE UPDATE ON ledger_heads WHEN NEW.tenant <> OLD.tenant OR NEW.writer <> OLD.writer OR NEW.position <= OLD.position BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: the recorded end of a chain only moves on'); END;
CREATE TRIGGER ledger_heads_no_delete BEFORE DELETE ON ledger_heads BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: the recorded end of a chain only moves on'); END;
CREATE TRIGGER ledger_heads_no_replace BEFORE INSERT ON ledger_heads WHEN EXISTS (
    SELECT 1 FROM ledger_heads WHERE tenant = NEW.tenant AND writer = NEW.writer AND position >= NEW.position
) BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: the recorded end of a chain only moves on'); END;
CREATE INDEX budgets_expiry ON budgets (expires_at);
CREATE INDEX budget_reservations_by_run ON budget_reservations (run_id);
CREATE INDEX runs_active ON runs (agent, status, rank, seq) WHERE status IN ('queued', 'running', 'waiting');
CREATE INDEX approvals_pending ON approvals (expires_at) WHERE status = 'pending';
CREATE INDEX approvals_by_run ON approvals (run_id);
CREATE INDEX approvals_by_agent ON approvals (agent, requested_at);
CREATE INDEX approvals_by_tenant ON approvals (tenant, requested_at);
CREATE INDEX approvals_by_status ON approvals (tenant, status, requested_at);
CREATE INDEX runs_awaiting ON runs (seq) WHERE awaits IS NOT NULL;
CREATE INDEX tasks_by_agent ON tasks (agent, created_at);
CREATE INDEX schedules_by_agent ON schedules (agent, created_at, schedule_id);
CREATE INDEX schedules_open ON schedules (agent) WHERE status IN ('active', 'paused');
CREATE INDEX webhook_deliveries_by_tenant ON webhook_deliveries (tenant, received_at);
CREATE INDEX webhook_deliveries_by_source ON webhook_deliveries (tenant, source, received_at);
CREATE INDEX webhook_deliveries_by_status ON webhook_deliveries (tenant, status, received_at);
CREATE INDEX callbacks_by_run ON callbacks (run_id);
CREATE INDEX callbacks_by_agent ON callbacks (agent, created_at);
CREATE INDEX callbacks_by_tenant ON callbacks (tenant, created_at);
CREATE INDEX callbacks_by_status ON callbacks (tenant, status, created_at);
CREATE INDEX callbacks_due ON callbacks (host, next_try_at) WHERE status = 'pending';
CREATE INDEX callbacks_by_age ON callbacks (created_at);
CREATE INDEX webhook_deliveries_waiting ON webhook_deliveries (agent, received_at) WHERE status = 'waiting';
CREATE INDEX webhook_deliveries_by_age ON webhook_deliveries (received_at);
CREATE INDEX agents_by_definition ON agents (definition, agent);
COMMIT;
