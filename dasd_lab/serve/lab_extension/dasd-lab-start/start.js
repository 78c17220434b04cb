// JupyterLab loads this as a federated extension. It runs the notebook that `dasd-lab lab` names in the configuration
// of the page as soon as it is open, and no other.
{
  const WIDGET = 'application/vnd.jupyter.widget-view+json';
  const config = JSON.parse(document.getElementById('jupyter-config-data').textContent);

  // Whether the outputs show widgets that still exist in the kernel, as after a reload of the page
  const isShown = async (kernel, model) => {
    const reply = await kernel.requestCommInfo({target_name: 'jupyter.widget'});
    const comms = reply.content.comms ?? {};
    const outputs = [...model.cells].flatMap(cell => cell.toJSON().outputs ?? []);
    return outputs.some(output => output.data?.[WIDGET]?.model_id in comms);
  };

  const run = async (app, panel, context) => {
    await Promise.all([app.restored, context.ready, panel.revealed, panel.sessionContext.ready]);
    const kernel = panel.sessionContext.session?.kernel;
    if (!kernel || await isShown(kernel, context.model)) return;
    app.shell.activateById(panel.id);
    await app.commands.execute('notebook:run-all-cells');
    panel.content.widgets.find(cell => cell.model.type === 'code')?.outputArea.node.scrollIntoView();
    await context.save();
  };

  const plugin = {
    id: 'dasd-lab-start:plugin',
    autoStart: true,
    activate: app => app.docRegistry.addWidgetExtension('Notebook', {
      createNew: (panel, context) => {
        if (context.path === config.dasdLabRuns) run(app, panel, context).catch(console.error);
      },
    }),
  };

  globalThis._JUPYTERLAB ??= {};
  globalThis._JUPYTERLAB['dasd-lab-start'] = {
    init: () => {},  // shares no modules
    get: async () => () => ({__esModule: true, default: plugin}),
  };
}
